"""Generated from proto/inference by `make proto`; never edited."""
