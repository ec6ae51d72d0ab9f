"""What tasks and threads do differently: the one part of the client that is written twice."""
