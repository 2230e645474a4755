def dump(f): raise NotImplementedError
def restore(f,t): raise NotImplementedError
