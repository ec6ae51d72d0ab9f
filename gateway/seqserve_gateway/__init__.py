"""The server over HTTP: JSON, the APIs of translation services, and a page to try models on."""
