// Sentences to begin with, in the language that a model reads; the last text has two sentences.

const TEXTS = {
  de: ["Der Kaffee schmeckt gut.", "Wenn ich mehr Zeit hätte, würde ich Klavier lernen.", "Es ist spät. Wir haben einen Film gesehen."],
  en: ["The coffee tastes good.", "If I had more time, I would learn to play the piano.", "It is late. We saw a good film."],
  es: ["El café está bueno.", "Si tuviera más tiempo, aprendería a tocar el piano.", "Es tarde. Hemos visto una película."],
  fr: ["Le café est bon.", "Si j'avais plus de temps, j'apprendrais le piano.", "Il est tard. Nous avons vu un film."],
  it: ["Il caffè è buono.", "Se avessi più tempo, imparerei a suonare il pianoforte.", "È tardi. Abbiamo visto un film."],
  ja: ["コーヒーはおいしいです。", "もっと時間があれば、ピアノを習います。", "もう遅いです。映画を見ました。"],
  ko: ["커피가 맛있다.", "시간이 더 있으면 피아노를 배우고 싶다.", "늦었다. 우리는 영화를 봤다."],
  pt: ["O café está bom.", "Se eu tivesse mais tempo, aprenderia a tocar piano.", "É tarde. Vimos um filme."],
  ru: ["Кофе вкусный.", "Если бы у меня было больше времени, я бы научился играть на пианино.", "Уже поздно. Мы посмотрели фильм."],
  zh: ["咖啡很好喝。", "如果我有更多时间，我会学弹钢琴。", "已经很晚了。我们看了一部电影。"],
};

// Codes of three letters, as NLLB has them.
const ALIASES = { deu: "de", eng: "en", spa: "es", fra: "fr", ita: "it", jpn: "ja", kor: "ko", por: "pt", rus: "ru", zho: "zh" };

/** Texts for a model and the language that is chosen; none if nobody can tell what it reads. */
export function examplesFor(model, chosen) {
  const named = /(?:^|-)([a-z]{2})-[a-z]{2}(?:-|$)/.exec(model?.name ?? "")?.[1];
  const codes = chosen ? [chosen] : [...(model?.source_languages ?? []), named ?? ""].map(String);
  const known = codes.map(languageOf).filter((code) => code in TEXTS);
  return TEXTS[!chosen && known.includes("en") ? "en" : known[0]] ?? [];
}

function languageOf(code) {
  const [language] = code.toLowerCase().split(/[_-]/);
  return ALIASES[language] ?? language;
}
