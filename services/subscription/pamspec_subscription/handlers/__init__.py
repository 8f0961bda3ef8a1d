"""One plain function per operation, behind one wrapper that verifies, decodes and refuses."""
