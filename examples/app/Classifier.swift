import CoreGraphics

/// The scores of a picture, one for each class; nil where it cannot be drawn.
func scores(of picture: CGImage) -> [Float]? {
    let (width, height) = (picture.width, picture.height)
    guard let canvas = CGContext(
        data: nil, width: width, height: height, bitsPerComponent: 8, bytesPerRow: 0,
        space: CGColorSpaceCreateDeviceRGB(), bitmapInfo: CGImageAlphaInfo.noneSkipLast.rawValue)
    else { return nil }
    canvas.draw(picture, in: CGRect(x: 0, y: 0, width: width, height: height))
    guard let pixels = canvas.data else { return nil }
    var given = classifier_picture(
        pixels: UnsafePointer(pixels.assumingMemoryBound(to: UInt8.self)), width: UInt32(width),
        height: UInt32(height), pixel_bytes: 4, row_bytes: UInt32(canvas.bytesPerRow))
    var scores = [Float](repeating: 0, count: Int(classifier_outputs()))
    return classifier_classify(&given, &scores) < 0 ? nil : scores
}
