// Package report keeps what a benchmark found: as JSON for programs and as Markdown for people,
// with a note on the machine and the command in each file.
package report
