"""What the memory services share: settings, connections, errors, wire forms, telemetry and lifecycle."""
