//! Draws curves over the number of workloads, as SVG.

use std::fmt::Write as _;

/// Width and height of one plot, and the space around it, in pixels.
const SIZE: (f64, f64) = (260.0, 180.0);
const MARGIN: f64 = 46.0;
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

/// Figures of one number of clusters.
pub struct Curve {
    name: String,
    /// Workloads, and the figures of each plot.
    points: Vec<(f64, [f64; 3])>,
}

impl Curve {
    /// Returns a curve without points.
    pub fn new(name: String) -> Self {
        Self {
            name,
            points: Vec::new(),
        }
    }

    /// Adds the figures of a number of workloads.
    pub fn push(&mut self, workloads: f64, figures: [f64; 3]) {
        self.points.push((workloads, figures));
    }
}

/// Returns three plots side by side, each with both axes by powers of ten.
pub fn svg(titles: [&str; 3], curves: &[Curve]) -> String {
    let (width, height) = (SIZE.0 + 2.0 * MARGIN, SIZE.1 + 2.0 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        3.0 * width
    );
    for (at, title) in titles.iter().enumerate() {
        let left = f64::from(u8::try_from(at).unwrap_or_default()) * width;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "<g transform=\"translate({left},0)\">");
        plot(&mut text, title, curves, at);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

fn plot(text: &mut String, title: &str, curves: &[Curve], at: usize) {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let across = Axis::of(points().map(|(workloads, _)| *workloads));
    let up = Axis::of(points().map(|(_, figures)| figures[at]));
    let x = |value: f64| MARGIN + across.place(value) * SIZE.0;
    let y = |value: f64| MARGIN + (1.0 - up.place(value)) * SIZE.1;
    let (right, bottom) = (MARGIN + SIZE.0, MARGIN + SIZE.1);
    let _ = writeln!(
        text,
        "<text x=\"{MARGIN}\" y=\"20\" font-weight=\"bold\">{title}</text>"
    );
    for power in across.powers() {
        let (x, label) = (x(power), power);
        let _ = writeln!(
            text,
            "<path d=\"M{x} {MARGIN}V{bottom}\" stroke=\"#ddd\"/><text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            bottom + 16.0
        );
    }
    for power in up.powers() {
        let (y, label) = (y(power), power);
        let _ = writeln!(
            text,
            "<path d=\"M{MARGIN} {y}H{right}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{label}</text>",
            MARGIN - 4.0,
            y + 4.0
        );
    }
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let places = curve
            .points
            .iter()
            .map(|(workloads, figures)| format!("{:.1},{:.1}", x(*workloads), y(figures[at])));
        let places: Vec<String> = places.collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            places.join(" ")
        );
        if let Some((workloads, figures)) = curve.points.last() {
            let _ = writeln!(
                text,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
                x(*workloads),
                y(figures[at]) - 6.0,
                curve.name
            );
        }
    }
    let _ = writeln!(
        text,
        "<text x=\"{right}\" y=\"{}\" text-anchor=\"end\">workloads</text>",
        bottom + 32.0
    );
}

/// An axis by powers of ten.
struct Axis {
    lowest: f64,
    highest: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let logs: Vec<f64> = values.map(|value| value.max(1.0).log10()).collect();
        let lowest = logs.iter().copied().fold(f64::INFINITY, f64::min).floor();
        let highest = logs.iter().copied().fold(0.0, f64::max).ceil();
        Self {
            lowest,
            highest: highest.max(lowest + 1.0),
        }
    }

    /// Returns where a value is, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        (value.max(1.0).log10() - self.lowest) / (self.highest - self.lowest)
    }

    fn powers(&self) -> impl Iterator<Item = f64> {
        let mut power = self.lowest;
        let highest = self.highest;
        std::iter::from_fn(move || {
            let this = (power <= highest).then(|| 10_f64.powf(power));
            power += 1.0;
            this
        })
    }
}
