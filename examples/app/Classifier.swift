import CoreGraphics
import CoreVideo

/// Make the network ready, for 1 to 256 threads; 0 takes all cores. The first call decides; without one, the first picture
/// opens it with one thread. `update` is a file that `membound export --cpp-file` wrote, such as one that the app has
/// downloaded. Returns nil if all is well; otherwise why not: then the network that is open, or compiled in, serves instead.
@discardableResult
func openClassifier(update: String? = nil, threads: Int32 = 1) -> String? {
    var why = [CChar](repeating: 0, count: 400)
    switch classifier_open_update(update, threads, &why, why.count) {
    case 1: return nil
    case 0: return update == nil ? nil : String(cString: why)
    default: return "no network can be opened: threads go from 0 to 256, or there is not enough memory"
    }
}

/// The name of a class; "" where the network has no names.
func className(_ index: Int) -> String {
    return String(cString: classifier_class(Int32(index)))
}

/// The scores of a picture, one for each class; nil where it cannot be drawn.
func scores(of picture: CGImage) -> [Float]? {
    return withPixels(of: picture, scores(ofPixels:))
}

/// The scores of a frame of the camera, which must be upright; nil unless it is in kCVPixelFormatType_32BGRA.
func scores(of frame: CVPixelBuffer) -> [Float]? {
    return withPixels(of: frame, scores(ofPixels:))
}

/// How many pixels a row of a mask has; 0 where the network gives no masks.
var maskWidth: Int { return Int(classifier_mask_width()) }

/// How many rows a mask has; 0 where the network gives no masks.
var maskHeight: Int { return Int(classifier_mask_height()) }

/// Of a network that gives masks: the class of each pixel of the picture's center, `maskHeight` rows of `maskWidth`; nil where
/// the network gives none, or the picture cannot be drawn.
func mask(of picture: CGImage) -> [UInt8]? {
    return withPixels(of: picture, mask(ofPixels:))
}

/// The same of a frame of the camera, which must be upright; nil unless it is in kCVPixelFormatType_32BGRA.
func mask(of frame: CVPixelBuffer) -> [UInt8]? {
    return withPixels(of: frame, mask(ofPixels:))
}

private func withPixels<Found>(of picture: CGImage, _ body: (inout classifier_picture) -> Found?) -> Found? {
    let (width, height) = (picture.width, picture.height)
    guard let canvas = CGContext(
        data: nil, width: width, height: height, bitsPerComponent: 8, bytesPerRow: 0,
        space: CGColorSpaceCreateDeviceRGB(), bitmapInfo: CGImageAlphaInfo.noneSkipLast.rawValue)
    else { return nil }
    canvas.draw(picture, in: CGRect(x: 0, y: 0, width: width, height: height))
    guard let pixels = canvas.data else { return nil }
    var given = describe(pixels, width: width, height: height, rowBytes: canvas.bytesPerRow, bgra: 0)
    return withExtendedLifetime(canvas) { body(&given) }
}

private func withPixels<Found>(of frame: CVPixelBuffer, _ body: (inout classifier_picture) -> Found?) -> Found? {
    guard CVPixelBufferGetPixelFormatType(frame) == kCVPixelFormatType_32BGRA else { return nil }
    CVPixelBufferLockBaseAddress(frame, .readOnly)
    defer { CVPixelBufferUnlockBaseAddress(frame, .readOnly) }
    guard let pixels = CVPixelBufferGetBaseAddress(frame) else { return nil }
    var given = describe(
        pixels, width: CVPixelBufferGetWidth(frame), height: CVPixelBufferGetHeight(frame),
        rowBytes: CVPixelBufferGetBytesPerRow(frame), bgra: 1)
    return body(&given)
}

private func describe(
    _ pixels: UnsafeMutableRawPointer, width: Int, height: Int, rowBytes: Int, bgra: UInt32
) -> classifier_picture {
    return classifier_picture(
        pixels: UnsafePointer(pixels.assumingMemoryBound(to: UInt8.self)), width: UInt32(width),
        height: UInt32(height), pixel_bytes: 4, row_bytes: UInt32(rowBytes), bgra: bgra)
}

private func scores(ofPixels given: inout classifier_picture) -> [Float]? {
    var scores = [Float](repeating: 0, count: Int(classifier_outputs()))
    return classifier_classify(&given, &scores) < 0 ? nil : scores
}

private func mask(ofPixels given: inout classifier_picture) -> [UInt8]? {
    guard maskHeight > 0 else { return nil }
    var mask = [UInt8](repeating: 0, count: maskHeight * maskWidth)
    return classifier_mask(&given, &mask) != 0 ? nil : mask
}
