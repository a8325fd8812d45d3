import java.nio.ByteBuffer;

/** The network in libclassifier. In a package of your own, rename the function in classifier_jni.cpp, too. */
public final class Classifier {
    static {
        System.loadLibrary("classifier");
    }

    private Classifier() {}

    /**
     * The scores of a picture, one for each class.
     *
     * @param pixels a direct buffer of R, G, B, A bytes, as Bitmap.copyPixelsToBuffer fills it (ARGB_8888)
     * @param rowBytes from one row to the next: Bitmap.getRowBytes()
     */
    public static native float[] scores(ByteBuffer pixels, int width, int height, int rowBytes);

    /** On a desktop: java -Djava.library.path=build Classifier picture.png */
    public static void main(String[] files) throws java.io.IOException {
        for (String file : files) {
            java.awt.image.BufferedImage image = javax.imageio.ImageIO.read(new java.io.File(file));
            int width = image.getWidth(), height = image.getHeight();
            ByteBuffer pixels = ByteBuffer.allocateDirect(4 * width * height);
            for (int argb : image.getRGB(0, 0, width, height, null, 0, width)) {
                pixels.putInt(argb << 8 | argb >>> 24);
            }
            float[] scores = scores(pixels, width, height, 4 * width);
            int best = 0;
            for (int i = 1; i < scores.length; i++) {
                if (scores[i] > scores[best]) {
                    best = i;
                }
            }
            System.out.println(file + ": class " + best + ", score " + scores[best]);
        }
    }
}
