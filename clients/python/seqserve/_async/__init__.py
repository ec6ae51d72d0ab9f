"""The asyncio client, from which ``make clients`` generates the blocking one."""
