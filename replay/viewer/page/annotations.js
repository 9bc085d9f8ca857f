// What is drawn over the slices, asked for once per life: marks, arrows, and where the inspected step lies.
import { askJson } from "./api.js";
import { stepAt, timesOf } from "./moments.js";
import { state } from "./store.js";

const MAX_LONG_MARKS = 50; // whose end is looked up on the step axis

/** {marks, arrows, otherArrows, isCut}, each with `at` (and `until`) on the axis asked for. What cannot be had is empty. */
export async function annotations(life, axis) {
  const which = state.beside ? "" : undefined; // side by side it is the left one's, whomever the inspectors tell of
  const [{ marks: ours, is_cut: marksCut }, { arrows, is_cut: arrowsCut }, { marks: theirs }, { arrows: otherArrows, is_cut: othersCut }] = await Promise.all([
    askJson("api/marks", { life, which }).catch(() => ({ marks: [] })),
    askJson("api/arrows", { life, which }).catch(() => ({ arrows: [] })),
    state.beside ? askJson("api/beside/marks", { life }).catch(() => ({ marks: [] })) : { marks: [] },
    state.beside ? askJson("api/beside/arrows", { life }).catch(() => ({ arrows: [] })) : { arrows: [] },
  ]);
  const marks = [...ours, ...theirs.map((one) => ({ ...one, isOther: true }))];
  const isTime = axis === "time";
  if (!isTime) await endsInSteps(marks);
  return {
    marks: marks.map((one) => ({ ...one, at: isTime ? one.now_ns : one.step, until: (isTime ? one.until_ns : one.until_step) ?? null })).filter((one) => one.at !== null).sort((one, other) => one.at - other.at),
    arrows: arrows.map((one) => ({ ...one, at: isTime ? one.now_ns : one.step })),
    otherArrows: otherArrows.map((one) => ({ ...one, at: isTime ? one.now_ns : one.step })), // of the second lane
    isCut: Boolean(marksCut || arrowsCut || othersCut),
  };
}

/** Marks have their end in time only; the step axis needs it in steps. */
async function endsInSteps(marks) {
  const long = marks.filter((one) => one.until_ns > one.now_ns).slice(0, MAX_LONG_MARKS);
  await Promise.all(long.map(async (one) => { one.until_step = await stepAt(one.until_ns).catch(() => null); }));
}

/** [begin, end] of a step on the axis; null when it is not known. */
export async function spanOf(step, axis) {
  if (step === null) return null;
  if (axis === "step") return [step, step + 1];
  return timesOf(step).catch(() => null);
}
