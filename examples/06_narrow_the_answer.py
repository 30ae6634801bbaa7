"""Ask for less or for more: allowed labels, chosen labels, a wider beam."""

import umpteen

train, test = umpteen.load_demo("train").take(slice(4_000)), umpteen.load_demo("test")
model = umpteen.XRLinear(tree={"leaf_size": 32}).fit(train.texts, train.Y, label_names=train.labels)
text = "A command line tool that converts audio files"

# only labels of one facet may be predicted
facet = [name for name in model.labels_.names() if name.startswith("works with:")]
print("anything:   ", model.topk([text], 3).names[0])
print("works with: ", model.topk([text], 3, allowed=facet).names[0])

# the scores of labels you name, whether or not a search would find them
wanted = ["works with: audio", "use: converting", "game: arcade"]
pairs = model.labels_.encode([wanted])
scores = model.score_labels([text], pairs).toarray()[0]
for name in wanted:
    print(f"{scores[model.labels_.encode([[name]]).indices[0]]:.3f}  {name}")

# a wider beam looks at more of the tree
for beam in (1, 2, 10, 100):
    top = model.topk(test.texts, 5, beam=beam)
    print(f"beam {beam:3}: P@5 {umpteen.evaluate(top, test.Y)['P@5']:.2f}")
