"""Runs before a server in its process: binds its life to the parent's, drops rights, then becomes the server.

A separate small program, since code between fork and exec is unsafe in a process with threads. It imports nothing of
the project and starts with `python -I -S`.

Arguments: parent pid, signal for the parent's death, uid and gid or `-`, then the server's own command line.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Never returns: the process becomes the server, or ends when the parent is gone already."""
    parent, death_signal, uid, gid, *command = arguments
    if uid != "-":
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    if sys.platform == "linux":
        # After setuid: a change of credentials clears it.
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
            sys.exit(f"cannot bind the server's life to its parent's: errno {ctypes.get_errno()}")
        if os.getppid() != int(parent):
            sys.exit("the parent ended before its server started")
    os.umask(0o077)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
