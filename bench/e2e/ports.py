from e2e.programs import Unavailable


def run(bench):
    raise Unavailable("not written yet")
