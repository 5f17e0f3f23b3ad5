// A small seeded generator (mulberry32): the same seed gives the same numbers on every machine.
export function generator(seed) {
    let state = seed >>> 0;
    const u32 = () => {
        state = (state + 0x6d2b79f5) >>> 0;
        let t = state;
        t = Math.imul(t ^ (t >>> 15), t | 1);
        t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
        return (t ^ (t >>> 14)) >>> 0;
    };
    return { u32, below: (n) => u32() % n };
}

// Writes lines in large pieces and waits when the reader is slower.
export async function writeLines(lines) {
    let piece = [];
    const flush = () =>
        new Promise((done, failed) =>
            process.stdout.write(piece.join("\n") + "\n", (error) => (error ? failed(error) : done())));
    for (const line of lines) {
        piece.push(line);
        if (piece.length === 20000) {
            await flush();
            piece = [];
        }
    }
    if (piece.length > 0) await flush();
}
