"""How calls reach a server: the protocol that the clients use, and gRPC behind it."""
