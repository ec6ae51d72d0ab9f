"""The whole way of a request, from its text to its result, in the process of the caller."""
