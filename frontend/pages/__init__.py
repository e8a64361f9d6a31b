"""The pages: each reads, renders, and leaves every decision to the rooms below."""
