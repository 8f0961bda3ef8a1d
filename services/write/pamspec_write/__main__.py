"""Run the write service as a process of its own."""

from pamspec_common.server import run
from pamspec_write.app import build
from pamspec_write.settings import Settings

if __name__ == "__main__":
    settings = Settings()
    run(build(settings), settings)
