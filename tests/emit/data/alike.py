import numpy as np


def data(rank, size, seed):
    made = {f"u[{i},{j}]": np.full(8, 10 * i + j + 1.0) for i in range(2) for j in range(2)}
    return {**made, **{f"u_0[{j}]": np.full(8, 100.0 + j) for j in range(2)}, "x": np.arange(1000.0), "_kept": 1000}


def expected(data, *, rank, size, seed):
    out = {f"U_0[{j}]": data[f"u[0,{j}]"] + 1000 * data[f"u_0[{j}]"] for j in range(2)}
    return {**out, "u_0_1": data["u[1,1]"] + 1000 * data["u_0[0]"], "a": data["x"][:10], "b": data["x"]}
