package layout

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/syncer"
)

// The cells of a key are in fields of two kinds. A page holds cells of one width, in the order of
// time; the log holds cells that were added without knowledge of the pages, in any order, a cell
// perhaps several times. What a key has is the sum of both.
const (
	// pageMark begins the name of a page. The width, the group and the number of the page in its
	// group follow, as unsigned varints.
	pageMark = 'c'
	// LogField is the name of the log.
	LogField = "d"
	// groupBits is the binary logarithm of the number of indexes in a group.
	groupBits = 24
	// maxPage is the largest value with which Redis keeps a Hash in its compact form.
	maxPage = 64
)

// groupOf returns the group of an index: a cell's start divided by its width.
func groupOf(index int64) int64 { return index >> groupBits }

// Pages encodes cells into pages. The zero value is ready to use.
type Pages struct {
	name, value []byte // of the page under way
	stem        int    // how much of the name all pages of the group have
	number      uint64
	before      []syncer.Bucket
}

// Each calls emit with the name and the value of each page of these cells, which are in the order
// of syncer.Bucket.Compare. If adds is not nil, they are a part of the cells, and Each leaves out
// pages that are the same without them. A page that is no longer there has an empty value. Both are
// valid until emit returns.
func (p *Pages) Each(cells, adds []syncer.Bucket, emit func(name, value []byte)) {
	for len(cells) > 0 {
		width, group := cells[0].Width, groupOf(cells[0].Start/cells[0].Width)
		n, end := 1, (group+1)<<groupBits*width
		for n < len(cells) && cells[n].Width == width && cells[n].Start < end {
			n++
		}
		switch from, touched := firstIn(adds, width, group); {
		case adds == nil:
			p.eachOfGroup(cells[:n], group, 0, emit)
		case touched:
			pages := p.eachOfGroup(cells[:n], group, from, emit)
			p.emitGone(cells[:n], adds, group, pages, emit)
		}
		cells = cells[n:]
	}
}

// firstIn returns the earliest of the adds in a group.
func firstIn(adds []syncer.Bucket, width, group int64) (from int64, found bool) {
	for i := range adds {
		if at := &adds[i]; at.Width == width && groupOf(at.Start/width) == group {
			if !found || at.Start < from {
				from, found = at.Start, true
			}
		}
	}
	return from, found
}

// emitGone emits the pages that a group had before the adds in addition to those that it has. It
// can only have had more if some of the adds are before other cells: these may take less now.
func (p *Pages) emitGone(cells, adds []syncer.Bucket, group int64, pages uint64,
	emit func(name, value []byte)) {
	n := len(cells)
	for n > 0 && find(adds, cells[n-1]) >= 0 {
		n--
	}
	p.before = p.before[:0]
	inside := false
	for _, c := range cells[:n] {
		added := find(adds, c)
		if added >= 0 {
			c.N -= adds[added].N
			inside = true
		}
		if added < 0 || c.N != 0 {
			p.before = append(p.before, c)
		}
	}
	if !inside { // all adds come after these
		return
	}
	p.before = append(p.before, cells[n:]...) // at least as many pages as before
	before := p.eachOfGroup(p.before, group, math.MaxInt64, func(_, _ []byte) {})
	for ; pages < before; pages++ {
		emit(binary.AppendUvarint(p.name[:p.stem], pages), nil)
	}
}

// find returns the position of a cell among the adds, or -1.
func find(adds []syncer.Bucket, cell syncer.Bucket) int {
	for i := range adds {
		if adds[i].Stretch == cell.Stretch {
			return i
		}
	}
	return -1
}

// eachOfGroup emits the pages of a group, except those that are the same without the cells from a
// time on. It returns how many pages there are.
func (p *Pages) eachOfGroup(cells []syncer.Bucket, group, from int64,
	emit func(name, value []byte)) uint64 {
	width := cells[0].Width
	p.name = binary.AppendUvarint(append(p.name[:0], pageMark), uint64(width))
	p.name = binary.AppendUvarint(p.name, uint64(group))
	p.stem, p.number = len(p.name), 0
	first := group << groupBits * width
	value, last := p.value[:0], first
	for i := range cells {
		c, end := &cells[i], len(value)
		value = appendCell(value, steps(c.Start-last, width), c.N)
		if len(value) > maxPage && end > 0 {
			p.endPage(value[:end], c.Start >= from, emit) // or it has lost a cell to the next one
			value = appendCell(value[:0], (c.Start-first)/width, c.N)
		}
		last = c.Start
	}
	p.endPage(value, true, emit)
	p.value = value
	return p.number
}

// endPage calls emit with a page, unless it is to be left out.
func (p *Pages) endPage(value []byte, wanted bool, emit func(name, value []byte)) {
	if wanted {
		p.name = binary.AppendUvarint(p.name[:p.stem], p.number)
		emit(p.name, value)
	}
	p.number++
}

// steps divides a distance by a width. They are mostly equal, and a division takes long.
func steps(distance, width int64) int64 {
	if distance == width {
		return 1
	}
	return distance / width
}

func appendCell(b []byte, after, n int64) []byte {
	if uint64(after) < 1<<14 && uint64(n) < 1<<6 { // mostly
		if after < 1<<7 {
			return append(b, byte(after), byte(n<<1))
		}
		return append(b, byte(after)|1<<7, byte(after>>7), byte(n<<1))
	}
	return binary.AppendVarint(binary.AppendUvarint(b, uint64(after)), n)
}

// AppendLog appends cells to a log.
func AppendLog(b []byte, cells []syncer.Bucket) []byte {
	for i := range cells {
		c := &cells[i]
		b = binary.AppendUvarint(b, uint64(c.Width))
		b = appendCell(b, c.Start/c.Width, c.N)
	}
	return b
}

// Content is the sum of a Hash's fields. The zero value is empty.
type Content struct {
	// Buckets are the cells, and the values of a key that has these instead.
	Buckets []syncer.Bucket
	// Logged is the length of the log.
	Logged int
	parts  bool // cells may occur several times
}

// Add adds a field. It reports whether the field is of a kind that counts events or values. If such
// a field can't be decoded, the key has a bucket with syncer.NoCount.
func (c *Content) Add(name, value string) (known bool) {
	switch {
	case name == LogField:
		c.Logged, c.parts = len(value), true
		c.check(c.addLog(value))
	case IsValueField(name):
		c.addValue(name, value)
	case len(name) > 1 && name[0] == pageMark:
		c.check(c.addPage(name[1:], value))
	default:
		return false
	}
	return true
}

// check adds a bucket without a count unless a field could be decoded.
func (c *Content) check(ok bool) {
	if !ok {
		none := syncer.Bucket{Stretch: leaparray.Moment(0), N: syncer.NoCount}
		c.Buckets = append(c.Buckets, none)
	}
}

// addPage adds a page whose name, after the mark, is given.
func (c *Content) addPage(name, value string) bool {
	var r varints
	r.text = name
	width, group := int64(r.next()), int64(r.next())
	r.next()
	if !r.done() || width <= 0 || group < 0 {
		return false
	}
	index := group << groupBits
	for r.text = value; len(r.text) > 0; {
		index += int64(r.next())
		if !c.addCell(index, width, r.nextSigned(), &r) {
			return false
		}
	}
	return true
}

// PageWidth returns the width of the cells of a page with this name, or 0 if it is that of no page.
func PageWidth(name string) int64 {
	if name == "" || name[0] != pageMark {
		return 0
	}
	r := varints{text: name[1:]}
	return int64(r.next())
}

func (c *Content) addLog(value string) bool {
	var r varints
	for r.text = value; len(r.text) > 0; {
		width, index := int64(r.next()), int64(r.next())
		if !c.addCell(index, width, r.nextSigned(), &r) {
			return false
		}
	}
	return true
}

// addCell adds a cell that was just read.
func (c *Content) addCell(index, width, n int64, r *varints) bool {
	if r.bad || width <= 0 || width > maxWidth || index < 0 || index > maxStart/width {
		return false
	}
	at := leaparray.Stretch{Start: index * width, Width: width}
	c.Buckets = append(c.Buckets, syncer.Bucket{Stretch: at, N: n})
	return true
}

// Bounds of the cells that are decoded. Widths are this large where the buckets of two ladders
// meet, see leaparray.MissingCells. The start is in the year 5138.
const (
	maxWidth = 1 << 46
	maxStart = 100_000_000_000_000
)

// Sum sums the parts of each cell, and sorts the cells in the order of syncer.Bucket.Compare.
func (c *Content) Sum() []syncer.Bucket {
	if !slices.IsSortedFunc(c.Buckets, syncer.Bucket.Compare) {
		slices.SortFunc(c.Buckets, syncer.Bucket.Compare)
	}
	if c.parts {
		c.Buckets = sumParts(c.Buckets)
	}
	return c.Buckets
}

// sumParts sums the parts of each cell, in place. A cell whose events were all taken back is left
// out: without events, it would be a mark for events ahead of the present.
func sumParts(list []syncer.Bucket) []syncer.Bucket {
	sums := list[:0]
	for i := 0; i < len(list); {
		sum, there := list[i], true
		for i++; i < len(list) && list[i].Stretch == sum.Stretch; i++ {
			sum.N = syncer.AddCounts(sum.N, list[i].N)
			there = sum.N != 0 || list[i].N == 0
		}
		if there {
			sums = append(sums, sum)
		}
	}
	return sums
}

// ParseContent adds up the flat reply of HGETALL. It skips fields of other kinds: they are foreign.
func ParseContent(reply []any, into []syncer.Bucket) Content {
	c := Content{Buckets: into[:0]}
	for i := 0; i+1 < len(reply); i += 2 {
		name, _ := reply[i].(string)
		value, _ := reply[i+1].(string)
		c.Add(name, value)
	}
	c.Sum()
	return c
}

// varints reads varints. Once it has found an error, it only returns zeros.
type varints struct {
	text string
	bad  bool
}

func (r *varints) next() (n uint64) {
	for i := 0; i < len(r.text) && i < binary.MaxVarintLen64; i++ {
		b := r.text[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			r.text = r.text[i+1:]
			return n
		}
	}
	r.text, r.bad = "", true
	return 0
}

func (r *varints) nextSigned() int64 {
	n := r.next()
	return int64(n>>1) ^ -int64(n&1)
}

// done reports whether all was read without an error.
func (r *varints) done() bool { return !r.bad && r.text == "" }

// VersionField is the name of the field with the version of a key, see commit.lua.
const VersionField = "v"

// ValueField returns the name of the field of a value.
func ValueField(hash uint64) string {
	buf := [valueField]byte{valueMark}
	binary.BigEndian.PutUint64(buf[1:], hash)
	return string(buf[:])
}

// IsValueField reports whether a field is that of a value.
func IsValueField(name string) bool { return len(name) == valueField && name[0] == valueMark }

func (c *Content) addValue(name, value string) {
	seen, err := strconv.ParseInt(value, 10, 64)
	if err != nil || seen <= 0 {
		seen = syncer.NoCount
	}
	at := leaparray.ValueAt(binary.BigEndian.Uint64([]byte(name[1:])))
	c.Buckets = append(c.Buckets, syncer.Bucket{Stretch: at, N: seen})
}
