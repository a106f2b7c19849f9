package zones

import "time"

// BuiltIn are the version and the files of the program's database.
const BuiltIn = builtInVersion

var BuiltInFiles = builtInFiles

// LoadFrom is Load, and Version, for a machine with these directories.
func LoadFrom(name string, directories ...string) (zone *time.Location, version string, err error) {
	db := newest(directories)
	zone, err = db.load(name)
	return zone, db.version, err
}
