"""The preset `auto`: large results become previews, and old messages are summarized at 85 % of the window."""


def make():
    return {
        "context_manager": "auto",  # glue
    }
