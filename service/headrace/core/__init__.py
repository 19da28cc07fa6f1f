"""The pure core: values in, values out. No I/O, no clock, no logging, no asyncio, no framework."""
