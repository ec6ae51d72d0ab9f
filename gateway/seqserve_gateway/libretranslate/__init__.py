"""The HTTP API of LibreTranslate, for its clients."""
