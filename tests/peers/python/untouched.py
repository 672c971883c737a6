"""The baseline: the whole conversation is sent without changes."""

from participant import Work, serve


class Untouched(Work):
    def begin(self):
        self.messages = []

    def turn(self, new):
        self.messages.extend(new)

    def array(self):
        return self.messages


if __name__ == "__main__":
    serve("untouched", {"clear": Untouched(), "offload": Untouched(), "budget": Untouched()})
