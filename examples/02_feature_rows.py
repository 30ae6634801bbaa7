"""Any matrix instead of texts: sparse or dense features, and labels as a matrix, as lists, or one per row."""

import numpy as np
import scipy.sparse as sp

from umpteen import XRLinear

rng = np.random.default_rng(0)
n_rows, n_features, n_labels = 2_000, 500, 100

# every label has five features of its own; a row shows those of its labels and some noise
own = rng.integers(0, n_features, (n_labels, 5))
Y = sp.random(n_rows, n_labels, density=0.02, format="csr", random_state=0)
Y.data[:] = 1.0
X = sp.random(n_rows, n_features, density=0.01, format="lil", random_state=1)
for row in range(n_rows):
    X[row, own[Y[row].indices].ravel()] = 1.0
X = X.tocsr()

model = XRLinear(tree={"leaf_size": 16}).fit(X[:1500], Y[:1500])
print("levels of the tree:", model.describe()["levels"])
print("P@1 from a sparse matrix:", round(model.score(X[1500:], Y[1500:]), 3))

top = model.topk(X[1500:1502], k=3)
print(top.labels)  # columns of Y, best first
print(top.scores)

# the answer of predict has the form that fit was given
print(type(model.predict(X[1500:])).__name__, type(XRLinear().fit(X, Y.toarray()).predict(X)).__name__)

# one label per row: an ordinary classifier
first = np.asarray(Y.argmax(axis=1)).ravel()
print(
    "accuracy of one label per row:",
    round(XRLinear().fit(X[:1500], first[:1500]).score(X[1500:], first[1500:]), 3),
)
