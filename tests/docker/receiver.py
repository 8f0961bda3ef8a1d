"""In the place of an OpenTelemetry collector: takes OTLP over HTTP on port 4318 and prints a line for each span.

It runs in the image `tools`, which has the exporter's own definition of the messages.
"""

import gzip
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Receiver(BaseHTTPRequestHandler):
    """POST /v1/traces."""

    def do_POST(self) -> None:
        """Prints the spans, then says that it has them."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"]
            for scope in resource.scope_spans:
                for span in scope.spans:
                    print(f"{service} {span.name} {span.trace_id.hex()} {span.span_id.hex()}", flush=True)
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


if __name__ == "__main__":
    ThreadingHTTPServer(("0.0.0.0", 4318), Receiver).serve_forever()
