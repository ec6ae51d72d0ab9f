"""Generated from proto/pieces by `make proto`; never edited."""
