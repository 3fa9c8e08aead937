"""Files, streams, devices, settings and messages."""
