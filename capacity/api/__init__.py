"""The promised functions: check what people give, call, unwrap. Specs are positional, numbers keyword-only.

Numbers may be scalars or numpy arrays that broadcast; scalar in, Python int or float out. Bytes are per device, the
heaviest one. A model may be a `ModelSpec` or, where its answer comes token by token, a `WorldModelSpec`.
"""
