"""The decoding options of a request; a check that fails raises InvalidRequest with the field."""
