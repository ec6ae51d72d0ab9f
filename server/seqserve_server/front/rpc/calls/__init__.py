"""What every call goes through: authorization, deadlines, status, its record."""
