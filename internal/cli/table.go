package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The colours, as ANSI escape codes.
const (
	red   = "31"
	green = "32"
	cyan  = "36"
	none  = "\x1b[0m"
)

// paint colours text if the output is coloured.
func (s *session) paint(colour, text string) string {
	if !s.usesColour() {
		return text
	}
	return "\x1b[" + colour + "m" + text + none
}

// quoteUnprintable quotes a key with characters that a terminal might act on.
func quoteUnprintable(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(key)
	}
	return key
}

// table holds rows of cells. The first left columns are aligned to the left; the others hold
// numbers and are aligned to the right.
type table struct {
	left int
	rows [][]string
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = fmt.Sprint(cell)
	}
	t.rows = append(t.rows, row)
}

// print writes the table unless it has no rows below its head.
func (t *table) print(w io.Writer) error {
	if len(t.rows) < 2 {
		return nil
	}
	width := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, row := range t.rows {
		line := ""
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i < t.left || i == len(row)-1 && row[i] != "" && !isNumber(row[i]) {
				line += cell + pad + "  "
			} else {
				line += pad + cell + "  "
			}
		}
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func isNumber(cell string) bool { return cell[0] >= '0' && cell[0] <= '9' }

// formatSize formats a number of bytes for people, such as 1.5 MiB.
func formatSize(bytes int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	size := float64(bytes)
	for size >= 1024 && len(units) > 1 {
		size /= 1024
		units = units[1:]
	}
	return strconv.FormatFloat(float64(int64(size*10))/10, 'f', -1, 64) + " " + units[0]
}
