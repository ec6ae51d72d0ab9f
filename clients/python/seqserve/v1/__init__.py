"""Generated from proto/seqserve/v1 by `make proto`; never edited."""
