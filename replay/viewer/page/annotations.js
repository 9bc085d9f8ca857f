// What is drawn over the slices, asked for once per life: marks, arrows, and where the inspected step lies.
import { askJson, embedded } from "./api.js";
import { stepAt, timesOf } from "./moments.js";

const MAX_LONG_MARKS = 50; // whose end is looked up on the step axis

/** {marks, arrows, isCut}, each with `at` (and `until`) on the axis asked for. What cannot be had is empty. */
export async function annotations(life, axis) {
  const [{ marks, is_cut: marksCut }, { arrows, is_cut: arrowsCut }] = await Promise.all([
    askJson("api/marks", { life }).catch(() => ({ marks: [] })),
    askJson("api/arrows", { life }).catch(() => ({ arrows: [] })),
  ]);
  const isTime = axis === "time";
  if (!isTime) await endsInSteps(marks);
  return {
    marks: marks.map((one) => ({ ...one, at: isTime ? one.now_ns : one.step, until: (isTime ? one.until_ns : one.until_step) ?? null })).filter((one) => one.at !== null),
    arrows: arrows.map((one) => ({ ...one, at: isTime ? one.now_ns : one.step })),
    isCut: marksCut || arrowsCut,
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
  return embedded ? null : timesOf(step).catch(() => null);
}
