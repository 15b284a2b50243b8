"""From a run of an application to a `.dag`: the logs of its ranks, the loop in them, its operations, and the text."""
