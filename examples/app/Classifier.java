import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** The network in libclassifier, for Android and for a desktop. In a package of your own, change JAVA in classifier_jni.cpp, too. */
public final class Classifier {
    static {
        System.loadLibrary("classifier");
    }

    private Classifier() {}

    /**
     * Make the network ready. The first call decides; without one, the first picture opens it with one thread.
     *
     * @param threads from 1 to 256; 0 takes all cores
     */
    public static void open(int threads) {
        open(null, threads);
    }

    /**
     * The same with the network of a file that `membound export --cpp-file` wrote, such as one that the app has downloaded.
     *
     * @return null if the file serves; otherwise why not: then the network that is open, or compiled in, does
     */
    public static String open(String path, int threads) {
        byte[] why = openFile(path == null ? null : (path + "\0").getBytes(StandardCharsets.UTF_8), threads);
        return why == null ? null : new String(why, StandardCharsets.UTF_8);
    }

    /**
     * The scores of a picture, one for each class.
     *
     * @param pixels a direct buffer of R, G, B, A bytes, as Bitmap.copyPixelsToBuffer fills it (ARGB_8888)
     * @param rowBytes from one row to the next: Bitmap.getRowBytes()
     */
    public static native float[] scores(ByteBuffer pixels, int width, int height, int rowBytes);

    /**
     * Of a network that gives masks: the class of each pixel of the picture's center, maskHeight() rows of maskWidth().
     * Bytes are signed in Java: the class of pixel i is mask[i] & 0xff. The parameters are those of scores.
     */
    public static native byte[] mask(ByteBuffer pixels, int width, int height, int rowBytes);

    /**
     * Convert a camera's frame in YUV_420_888 to pixels for scores and mask, and turn it upright. The planes are direct
     * buffers, as those of ImageProxy and Image are; of NV21, u and v are slices of one.
     *
     * @param uvPixelBytes from one u to the next: Plane.getPixelStride()
     * @param turn clockwise degrees: 0, 90, 180 or 270, as getRotationDegrees() says; of 90 and 270 the picture is height wide
     * @param pixels a direct buffer of 4 * width * height bytes, which is filled from its start
     */
    public static native void convert(
            ByteBuffer y, ByteBuffer u, ByteBuffer v, int width, int height, int yRowBytes, int uvRowBytes, int uvPixelBytes,
            int turn, ByteBuffer pixels);

    /** How many pixels a row of a mask has; 0 where the network gives no masks. */
    public static native int maskWidth();

    /** How many rows a mask has; 0 where the network gives no masks. */
    public static native int maskHeight();

    /** The name of a class; "" where the network has no names. */
    public static String name(int index) {
        return new String(nameBytes(index), StandardCharsets.UTF_8);
    }

    private static native byte[] openFile(byte[] path, int threads);

    private static native byte[] nameBytes(int index);
}
