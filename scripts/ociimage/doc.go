// Command ociimage writes an image of static programs, one for each architecture of Linux, as a tar
// of an OCI image layout (https://github.com/opencontainers/image-spec, version 1.1):
//
//	ociimage -name twotier:1.2.3 -created 1700000000 -certificates FILE ARCH=PROGRAM... >FILE
//
// The image is that of deploy/Dockerfile: the program and certificates of authorities, run by user
// 65532. Equal inputs give equal bytes. The tar also has the manifest.json of docker save, for
// Docker versions that read nothing else; such a version loads each architecture by a tag of its
// own, 1.2.3-amd64, if there are several.
package main
