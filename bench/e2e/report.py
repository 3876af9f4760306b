def write(results):
    raise NotImplementedError(results)
