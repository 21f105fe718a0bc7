pac release people.csv --model mean --columns income --group-by region --promise dp \
    --ranges 0,200000 --levels region=east,north,south,west --budget "epsilon<=1" -o out-dp
