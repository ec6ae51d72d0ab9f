"""The way of a request that generates, from its message to its response; read ``records`` first."""
