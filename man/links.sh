# SPDX-License-Identifier: BSD-3-Clause
# links.sh [--remove] FOLDER PAGE...: writes (or removes) a file for each function that a page describes, except
# the one that the page is named after. The file refers man(1) to the page. PAGE is NAME.3 or NAME.3.in.
remove=no
[ "$1" != --remove ] || { remove=yes; shift; }
folder=$1
shift
for page; do
    own=${page##*/} own=${own%%.3*}
    for name in $(sed -n '/^\.Sh NAME/,/^\.Nd/s/^\.Nm \(dist_[a-z_]*\).*/\1/p' "$page"); do
        [ "$name" != "$own" ] || continue
        if [ $remove = yes ]; then
            rm -f "$folder/$name.3"
        else
            echo ".so man3/$own.3" >"$folder/$name.3" || exit 1
        fi
    done
done
