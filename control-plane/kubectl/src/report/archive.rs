//! A gzipped tar archive of some texts.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::File;

/// Bytes of a block of a tar archive.
const BLOCK: usize = 512;

/// Writes the archive: files in a directory of this name.
pub(super) fn write(to: impl Write, directory: &str, files: &[File]) -> io::Result<()> {
    let mut archive = GzEncoder::new(to, Compression::default());
    for file in files {
        let name = format!("{directory}/{}", file.name);
        archive.write_all(&header(&name, file.content.len()))?;
        archive.write_all(file.content.as_bytes())?;
        let rest = file.content.len().next_multiple_of(BLOCK) - file.content.len();
        archive.write_all(&[0; BLOCK][..rest])?;
    }
    archive.write_all(&[0; 2 * BLOCK])?;
    archive.finish()?.flush()
}

/// Returns the header of a file in the format ustar.
fn header(name: &str, size: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, &name.as_bytes()[..name.len().min(100)]);
    put(100, b"0000600\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    // The sum is taken with blanks in its own place.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|it| u32::from(*it)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_reads_what_was_written() {
        let long = "x".repeat(BLOCK);
        let files = ["", "one\n", &long].map(|content| File {
            name: format!("of-{}", content.len()),
            content: content.to_owned(),
        });
        let place = std::env::temp_dir().join(format!("muster-archive-{}", std::process::id()));
        write(std::fs::File::create(&place).unwrap(), "report", &files).unwrap();
        let listed = Command::new("tar")
            .arg("-tzf")
            .arg(&place)
            .output()
            .unwrap();
        let read = Command::new("tar")
            .arg("-xzOf")
            .arg(&place)
            .arg("report/of-4")
            .output()
            .unwrap();
        std::fs::remove_file(&place).unwrap();
        let names = String::from_utf8(listed.stdout).unwrap();
        assert_eq!(names, "report/of-0\nreport/of-4\nreport/of-512\n");
        assert_eq!(read.stdout, b"one\n");
    }
}
