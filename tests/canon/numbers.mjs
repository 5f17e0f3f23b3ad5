// node numbers.mjs SEED COUNT: lines "<16 hex digits of the double> <as JSON.stringify prints it>".
import { generator, writeLines } from "./random.mjs";

const [seed, count] = process.argv.slice(2).map(Number);
const { u32, below } = generator(seed);
const view = new DataView(new ArrayBuffer(8));

const fromBits = (high, low) => {
    view.setUint32(0, high);
    view.setUint32(4, low);
    return view.getFloat64(0);
};
const neighbour = (x, ulps) => {
    view.setFloat64(0, x);
    view.setBigUint64(0, BigInt.asUintN(64, view.getBigUint64(0) + BigInt(ulps)));
    return view.getFloat64(0);
};
const kinds = [
    () => fromBits(u32(), u32()), // any bit pattern
    () => neighbour(2 ** (below(2098) - 1074), below(5) - 2), // around powers of two, where the interval is lopsided
    () => neighbour(Number(`1e${below(632) - 323}`), below(5) - 2), // around powers of ten
    () => Number(`${u32()}e${below(40) - 30}`), // what people write
    () => (u32() - 2 ** 31) / 10 ** below(10), // money
    () => neighbour(Math.trunc(u32() * 2 ** below(45)), below(3) - 1), // integers, around 2^53 and 1e21 too
    () => fromBits(below(2 ** 20), u32()), // subnormal
];

function* lines() {
    for (let i = 0; i < count; ) {
        const x = kinds[below(kinds.length)]();
        if (!Number.isFinite(x)) continue;
        view.setFloat64(0, x);
        const bits = view.getUint32(0).toString(16).padStart(8, "0") + view.getUint32(4).toString(16).padStart(8, "0");
        yield `${bits} ${JSON.stringify(x)}`;
        i++;
    }
}
await writeLines(lines());
