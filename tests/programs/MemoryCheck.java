// SPDX-License-Identifier: BSD-3-Clause
// MemoryCheck ROUNDS: direct buffers and mapped files of a JVM, registered while threads allocate, the collector works
// and processes are started.
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.Random;

public class MemoryCheck {
    static { System.loadLibrary("memory_exchange_jni"); }
    static native int open();
    static native long register(ByteBuffer at);
    static native int deregister(long region);
    static native int peerWrites(long region, ByteBuffer at, int seed);
    static native int peerReads(long region, ByteBuffer at, int seed);
    static native void fill(int seed, ByteBuffer at);
    static native long findWrong(int seed, ByteBuffer at);

    static void churn() {
        Random random = new Random();
        while (true) {
            ArrayList<byte[]> list = new ArrayList<>();
            for (int i = 0; i < 64; ++i) list.add(new byte[random.nextInt(256 << 10)]);
            if (random.nextInt(50) == 0) System.gc();
            try { Thread.sleep(1); } catch (InterruptedException e) { return; }
        }
    }

    static void check(boolean good, String what, int round) {
        if (good) return;
        System.err.println("round " + round + ": " + what);
        System.exit(1);
    }

    public static void main(String[] words) throws Exception {
        int rounds = Integer.parseInt(words[0]);
        check(open() == 0, "no devices", -1);
        for (int i = 0; i < 3; ++i) {
            Thread thread = new Thread(MemoryCheck::churn);
            thread.setDaemon(true);
            thread.start();
        }
        Random random = new Random(1);
        for (int round = 0; round < rounds; ++round) {
            int bytes = 1 + random.nextInt(1 << 20);
            ByteBuffer at;
            RandomAccessFile file = null;
            if (round % 3 == 0) {
                file = new RandomAccessFile("/dev/shm/memory-check-" + ProcessHandle.current().pid(), "rw");
                at = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, bytes);
            } else {
                at = ByteBuffer.allocateDirect(bytes);
            }
            int seed = 3 * round;
            fill(seed, at);
            long region = register(at);
            check(region != 0, "not registered", round);
            check(peerReads(region, at, seed) == 0, "the peer reads something else", round);
            if (round % 10 == 0) check(new ProcessBuilder("/bin/true").start().waitFor() == 0, "a process", round);
            check(peerWrites(region, at, seed + 1) == 0, "the peer can't write", round);
            check(findWrong(seed + 1, at) < 0, "other bytes after the peer's WRITE", round);
            fill(seed + 2, at);
            check(peerReads(region, at, seed + 2) == 0, "the peer reads something else", round);
            check(deregister(region) == 0, "not deregistered", round);
            check(findWrong(seed + 2, at) < 0, "other bytes when it was deregistered", round);
            if (file != null) file.close();
        }
        System.out.println(rounds + " rounds, no difference");
        System.exit(0);
    }
}
