// What the page knows: models, texts with their labels, the threshold, and what is explained.

export const state = {
  models: [], // as /v1/models lists them
  limits: { max_k: 50, max_texts: 8, max_characters: Infinity }, // of the server
  chosen: [], // ids of the models that tag, in the order of the list
  texts: [{ name: "", text: "", found: new Map() }], // found: id of a model -> labels, an error or "waiting"
  at: 0, // the text that is shown
  threshold: null, // null: that of each model
  explained: null, // { model, label } that the panel explains
};

export const current = () => state.texts[state.at];

export const modelOf = (id) => state.models.find((model) => model.id === id);

export const chosenModels = () => state.models.filter((model) => state.chosen.includes(model.id));

// Return the value by which a label is compared with the threshold: a probability, or a score if there is none.
export const valueOf = (hit) => hit.probability ?? hit.score;

// Return the labels of a text that a model suggests at the present threshold.
export function suggested(model, hits) {
  if (state.threshold !== null) return hits.filter((hit) => valueOf(hit) >= state.threshold);
  const reaching = hits.filter((hit) => valueOf(hit) >= model.threshold);
  return model.limit ? reaching.slice(0, model.limit) : reaching;
}
