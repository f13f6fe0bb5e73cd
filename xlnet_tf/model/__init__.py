"""The network: two-stream relative attention, masks, memory."""
