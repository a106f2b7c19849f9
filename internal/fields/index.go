package fields

import "encoding/binary"

// Named returns the field of that name in JSON, or 0.
func Named(name []byte) Set { return lookups.names.find(name) }

// Worded returns the field with the option of that word in RESP, in capital letters, or 0.
func Worded(word []byte) Set { return lookups.words.find(word) }

var lookups = func() (x struct{ names, words index }) {
	for i, r := range table {
		x.names.add(r.name, 1<<i)
		x.words.add(r.word, 1<<i)
	}
	return x
}()

// packed is a name of at most 16 bytes, as numbers: they are compared and hashed faster than text,
// about as fast as in a switch of all names.
type packed struct {
	first, last uint64
	length      int
}

// pack packs a name of 1 to 16 bytes.
func pack(name []byte) packed {
	n := len(name)
	switch {
	case n >= 8:
		return packed{binary.LittleEndian.Uint64(name), binary.LittleEndian.Uint64(name[n-8:]), n}
	case n >= 4:
		return packed{uint64(binary.LittleEndian.Uint32(name)),
			uint64(binary.LittleEndian.Uint32(name[n-4:])), n}
	}
	return packed{uint64(name[0]) | uint64(name[n/2])<<8, uint64(name[n-1]), n}
}

// place returns where a name is in an index, unless another one is there.
func (p packed) place() uint8 { return uint8((p.first + p.last<<1) * 0x9e3779b97f4a7c15 >> 57) }

// index is a hash table of fields by name. A field is in the place of its name, or in the next one
// that is free.
type index [128]struct {
	name  packed
	field Set
}

// add adds a field, unless it has no name.
func (x *index) add(name string, f Set) {
	if name == "" {
		return
	}
	p := pack([]byte(name))
	i := p.place()
	for x[i].field != 0 {
		i = (i + 1) % uint8(len(x))
	}
	x[i].name, x[i].field = p, f
}

// find returns the field of that name, or 0.
func (x *index) find(name []byte) Set {
	if len(name) == 0 || len(name) > 16 {
		return 0
	}
	p := pack(name)
	for i := p.place(); ; i = (i + 1) % uint8(len(x)) {
		if e := &x[i]; e.name == p || e.field == 0 {
			return e.field
		}
	}
}
