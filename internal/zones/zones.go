package zones

import (
	"archive/zip"
	_ "embed"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// builtInVersion is the release of the IANA database in zoneinfo.zip.
const builtInVersion = "2025c"

//go:embed zoneinfo.zip
var builtInFiles string

// directories are where machines keep their database. The variable ZONEINFO comes before them, as
// in package time.
var directories = [...]string{"/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ",
	"/etc/zoneinfo"}

// database is a release of the IANA database.
type database struct {
	version string
	files   fs.FS
}

// opened is a database that is opened once. It is no sync.OnceValue, because that would link the
// files into programs that read no time zones, such as those with the Go client.
type opened struct {
	once sync.Once
	db   database
}

func (o *opened) get(open func() database) database {
	o.once.Do(func() { o.db = open() })
	return o.db
}

var own, inUse opened

// builtIn returns the database of the program.
func builtIn() database {
	return own.get(func() database {
		files, err := zip.NewReader(strings.NewReader(builtInFiles), int64(len(builtInFiles)))
		if err != nil {
			panic(err) // it depends on nothing
		}
		return database{builtInVersion, files}
	})
}

// current returns the database in use.
func current() database {
	return inUse.get(func() database {
		return newest(append([]string{os.Getenv("ZONEINFO")}, directories[:]...))
	})
}

// newest returns the newest of the databases in directories, or the one of the program if none is
// newer. A database of unknown version is not newer.
func newest(directories []string) database {
	db := builtIn()
	for _, dir := range directories {
		if dir == "" {
			continue
		}
		files := os.DirFS(dir)
		if version := versionOf(files); version > db.version {
			db = database{version, files}
		}
	}
	return db
}

// versionFiles are the files that begin with the version of a database: its source text, and one
// for the version alone.
var versionFiles = [...]struct {
	name    string
	pattern *regexp.Regexp
}{
	{"tzdata.zi", regexp.MustCompile(`^# version (\d{4}[a-z]{1,2})\b`)},
	{"+VERSION", regexp.MustCompile(`^(\d{4}[a-z]{1,2})\s*$`)},
}

// versionOf returns the version of a database, such as 2025c, or "" if it is unknown.
func versionOf(files fs.FS) string {
	for _, v := range versionFiles {
		f, err := files.Open(v.name)
		if err != nil {
			continue
		}
		head := make([]byte, 64)
		n, _ := io.ReadFull(f, head) // most files are longer, and some shorter
		_ = f.Close()
		if found := v.pattern.FindSubmatch(head[:n]); found != nil {
			return string(found[1])
		}
	}
	return ""
}

// Version returns the release of the IANA database in use, such as 2025c. Later ones are greater.
func Version() string { return current().version }

// Load returns the time zone of that name, such as Europe/Lisbon. An empty name means UTC.
func Load(name string) (*time.Location, error) { return current().load(name) }

// load is Load for a database. A zone that it lacks is the program's.
func (db database) load(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	data, err := fs.ReadFile(db.files, name)
	if err != nil {
		data, err = fs.ReadFile(builtIn().files, name)
	}
	if err != nil {
		return nil, err
	}
	return time.LoadLocationFromTZData(name, data)
}
