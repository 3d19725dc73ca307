package savanna.bench;

/** Random numbers by counter, as in the generator's random.rs: number n of a column belongs to event n. */
final class Draws {
    private static final long GAMMA = 0x9e3779b97f4a7c15L;

    private final long key;

    Draws(long seed, long tag) {
        key = mix(mix(seed + GAMMA) ^ tag * 0xd6e8feb86659fd93L);
    }

    private static long mix(long x) {
        x = (x ^ (x >>> 30)) * 0xbf58476d1ce4e5b9L;
        x = (x ^ (x >>> 27)) * 0x94d049bb133111ebL;
        return x ^ (x >>> 31);
    }

    long at(long n) {
        return mix(key + n * GAMMA);
    }

    /** The upper 32 of the random bits of event n. */
    int high(long n) {
        return (int) (at(n) >>> 32);
    }

    /** 32 random bits as a number below the bound, which is below 2^32. */
    static int below(int bits, long bound) {
        return (int) ((Integer.toUnsignedLong(bits) * bound) >>> 32);
    }
}
