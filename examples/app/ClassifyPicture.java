import java.awt.image.BufferedImage;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import javax.imageio.ImageIO;

/** Tries Classifier on a desktop's JVM: java -Djava.library.path=build ClassifyPicture PICTURE [UPDATE]. Not for Android. */
public final class ClassifyPicture {
    private ClassifyPicture() {}

    public static void main(String[] words) throws IOException {
        if (words.length < 1 || words.length > 2) {
            System.err.println("usage: ClassifyPicture PICTURE [UPDATE]");
            System.exit(1);
        }
        String refused = Classifier.open(words.length > 1 ? words[1] : null, 1);
        if (refused != null) { // an app would go on with the network that is compiled in
            System.err.println(words[1] + ": " + refused);
            System.exit(1);
        }
        BufferedImage image = ImageIO.read(new File(words[0]));
        if (image == null) {
            System.err.println(words[0] + ": not a picture that Java can read");
            System.exit(1);
        }
        int width = image.getWidth(), height = image.getHeight();
        ByteBuffer pixels = ByteBuffer.allocateDirect(4 * width * height);
        for (int argb : image.getRGB(0, 0, width, height, null, 0, width)) {
            pixels.putInt(argb << 8 | argb >>> 24);
        }
        if (Classifier.maskHeight() > 0) {
            int[] counts = new int[256];
            int most = 0;
            for (byte each : Classifier.mask(pixels, width, height, 4 * width)) {
                counts[each & 0xff]++;
                most = Math.max(most, each & 0xff);
            }
            for (int i = 0; i <= most; i++) {
                System.out.println("class " + i + ": " + counts[i] + " pixels");
            }
            return;
        }
        float[] scores = Classifier.scores(pixels, width, height, 4 * width);
        int best = 0;
        for (int i = 1; i < scores.length; i++) {
            if (scores[i] > scores[best]) {
                best = i;
            }
        }
        String name = Classifier.name(best);
        System.out.println("class " + best + (name.isEmpty() ? "" : ": " + name) + ", score " + scores[best]);
    }
}
